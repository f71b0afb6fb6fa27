//! Parts of a channel: each owns a subject.

/// Declares a part of a channel. It is one pointer, so that it costs a GPU one register; the parts in braces are those
/// that it may use. What words of the channel it may touch, `fields!` says.
macro_rules! part {
    ($(#[$doc:meta])* $vis:vis $name:ident { $($part:ident: $type:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        $vis struct $name<'s, P: $crate::platform::Platform> {
            ptr: $crate::state_ptr::ChannelPtr<'s, P>,
        }

        impl<'s, P: $crate::platform::Platform> $name<'s, P> {
            #[inline(always)]
            $vis const fn of(ptr: $crate::state_ptr::ChannelPtr<'s, P>) -> Self {
                Self { ptr }
            }
            $(
                #[inline(always)]
                const fn $part(self) -> $type<'s, P> {
                    $type::of(self.ptr)
                }
            )*
        }
    };
}
pub(crate) use part;
