//! Objects of the mlx5 provider.

mod uar;

use crate::ioctl::Method;

/// Objects and their methods; the numbers are the driver's own.
const UAR: u16 = 0x1008;

/// The methods of the provider's objects.
pub const METHODS: &[Method] = &[
    Method { object: UAR, method: 0x1000, attributes: uar::ALLOC, run: uar::alloc },
    Method { object: UAR, method: 0x1001, attributes: uar::DESTROY, run: uar::destroy },
];
