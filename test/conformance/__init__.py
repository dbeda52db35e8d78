"""The operator database of the installed PyTorch as a test of the lazy device: what passes on the CPU must be the
same on the device.

cases.py     what is run: variants of an op, as calls on inputs that live on the CPU
compare.py   runs one call on both devices and lists the differences a user can see
worker.py    one process: runs all calls of one op x variant x dtype, a cell
runner.py    the driver: hands cells to workers, outlives their crashes and hangs
report.py    the table and the list of failures
"""
