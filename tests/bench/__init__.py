"""The measurements: crawlring beside other crawlers, and each of its parts alone; `python -m tests.bench` runs the first."""
