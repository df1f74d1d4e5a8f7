IO.puts(undefined_variable)
