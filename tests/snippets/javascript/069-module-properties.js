console.log(module.id, module.filename, module.loaded, module.paths, module.children, module.parent);
console.log(__filename, __dirname, require.main === module, process.mainModule === module);
