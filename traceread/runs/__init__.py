"""What step logs say about whole runs: throughput, goodput, cost, spikes, and the telemetry beside them."""
