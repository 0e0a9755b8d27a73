"""Amazon's Kinesis Data Streams as source and sink, and Data Firehose as sink."""
