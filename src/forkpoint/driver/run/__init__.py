"""What happens in an epoch, and between two: planning, computing, committing; failures, requests, the end."""
