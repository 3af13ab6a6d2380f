"""What runs minutewheel: the local broker, and the files for containers, systemd and Prometheus."""
