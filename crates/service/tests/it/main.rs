//! Use cases over a real store and real slots.

#[cfg(test)]
mod examples;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tools;
