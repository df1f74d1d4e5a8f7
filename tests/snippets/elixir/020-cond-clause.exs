cond do
  1 > 2 -> :no
end
