print('ÿ')
