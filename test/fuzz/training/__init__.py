"""Random training loops: models put together from layers, trained for a few steps on the device and on the CPU."""
