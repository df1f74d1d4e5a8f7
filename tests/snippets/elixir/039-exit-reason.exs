exit(:bad_reason)
