"""Jobs that are killed again and again while they write to a real system; each record must arrive once.

python -m kills SYSTEM [--kills 30] [--engine local] [--seed 1] [--only KIND …]
"""
