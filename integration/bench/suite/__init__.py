"""The parts of `bench.py`: workloads as data, the libraries they run on, the processes that run them, the report."""
