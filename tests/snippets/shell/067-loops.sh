for i in 1 2 3 4; do
  [ $i = 2 ] && continue
  [ $i = 4 ] && break
  echo $i
done
until [ $i = 0 ]; do i=$((i - 1)); done
echo $i
