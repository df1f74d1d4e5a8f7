id -u
id -g
echo "$USER $HOME"
