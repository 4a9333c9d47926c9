"""What tests share: real servers and processes, started and stopped."""
