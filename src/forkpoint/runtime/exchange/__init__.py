"""Data that tasks and driver exchange: batches of elements, and control data."""
