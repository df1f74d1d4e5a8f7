Enum.map(42, & &1)
