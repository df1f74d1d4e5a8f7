//! Rules of the repository itself: what may be depended on, how code is laid out, what pages say.

mod checkout;
mod code;
mod dependencies;
mod kernel_modules;
mod licences;
mod pages;
mod stages;
