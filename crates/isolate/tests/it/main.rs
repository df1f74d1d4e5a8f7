//! Real slots on this machine's kernel, judged by effect. The programs inside need nothing but a
//! shell and its everyday tools, so that the same tests run in a small virtual machine.

#[cfg(test)]
mod announced;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod files;
#[cfg(test)]
mod freezing;
#[cfg(test)]
mod host;
#[cfg(test)]
mod image_worker;
#[cfg(test)]
mod images;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod slots;
#[cfg(test)]
mod supervisor;
#[cfg(test)]
mod volumes;
