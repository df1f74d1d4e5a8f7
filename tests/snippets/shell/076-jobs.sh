sleep 0.05 & sleep 0.05 &
wait
echo all done
