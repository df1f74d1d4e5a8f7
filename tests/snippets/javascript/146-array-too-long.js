new Array(-1);
