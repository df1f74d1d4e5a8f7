console.log(new Float64Array([1.5, 2]), new DataView(new ArrayBuffer(4)).byteLength, structuredClone(new Map([[1, new Date(0)]])));
