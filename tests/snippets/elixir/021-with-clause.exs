with {:ok, x} <- {:error, :bad} do
  x
else
  :never -> :matched
end
