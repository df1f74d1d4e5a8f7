//! Real slots on this machine's kernel, judged by effect.

#[cfg(test)]
mod host;
#[cfg(test)]
mod slots;
