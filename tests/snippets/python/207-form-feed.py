print('ff')
