"""The targets of docs/performance.md, each measured in a process of its own."""
