"""Differential fuzzing: random programs that must do on the lazy device what they do on the CPU."""
