//! Streams that change what is read and leave alone what is written.

/// Forwards what is written to a stream to the stream in this field. `poll_close`, if it is named, replaces its shutdown.
macro_rules! forward_writes {
    ($stream:ident, $field:ident) => {
        forward_writes!($stream, $field, |this, context| {
            std::pin::Pin::new(&mut this.$field).poll_shutdown(context)
        }, tokio::io::AsyncWrite);
    };
    ($stream:ident, $field:ident, $poll_close:ident) => {
        forward_writes!($stream, $field, |this, context| this.$poll_close(context),
            tokio::io::AsyncRead + tokio::io::AsyncWrite);
    };
    ($stream:ident, $field:ident, |$this:ident, $context:ident| $close:expr, $($bound:tt)+) => {
        impl<S: $($bound)+ + Unpin> tokio::io::AsyncWrite for $stream<S> {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut self.$field).poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut self.$field).poll_write_vectored(context, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.$field.is_write_vectored()
            }

            fn poll_flush(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut self.$field).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: std::pin::Pin<&mut Self>,
                $context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $this = &mut *self;
                $close
            }
        }
    };
}

pub(crate) use forward_writes;
