"""The head over a vocabulary that is split: by rows of the weight, over ranks of a group or shards in one process."""
