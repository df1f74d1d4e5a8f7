name = IO.gets("name? ")
IO.puts("hello " <> String.trim(name))
