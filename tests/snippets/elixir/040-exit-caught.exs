try do
  exit(:oops)
catch
  :exit, reason -> IO.inspect(reason)
end
