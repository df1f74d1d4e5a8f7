console.log('ÿ'.length);
