"""What fastshard reaches, beside what other loaders and bare loops reach. README.md says how to run it."""
