leave() { echo leaving; exit 6; }
leave
echo never
