//! Key tables: which key covers which chunk of which heap on which rail. As device code holds them.

use crate::error::KeyError;

/// lkeys by (rail, chunk), rkeys by (PE, remote rail, chunk), as numbers. Rails a PE lacks hold key 0. The data of puts
/// has a table of rkeys of its own, which names the same keys where they serve for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTable {
    rails: u32,
    chunks: u32,
    log2_chunk: u32,
    lkeys: Vec<u32>,
    rkeys: Vec<u32>,
    data_rkeys: Vec<u32>,
}

/// How far a heap has keys.
#[derive(Clone, Debug)]
pub struct Reached {
    /// All keys.
    pub keys: KeyTable,
    /// Of the chunks whose keys are made late, those that have theirs.
    pub chunks: u32,
}

/// Chunks of a heap.
pub fn chunks(heap_bytes: u64, log2_chunk: u32) -> u32 {
    heap_bytes.div_ceil(1 << log2_chunk) as u32
}

/// Sizes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyShape {
    /// Rails of a row: the most any PE has.
    pub rails: u32,
    /// Chunks of the heap.
    pub chunks: u32,
    /// log2 of the bytes of a chunk.
    pub log2_chunk: u32,
}

impl KeyTable {
    /// Builds the tables: `mine[rail][chunk]`, `theirs[pe][rail][chunk]`, our own PE among them; `data` as `theirs`.
    pub fn build(
        shape: KeyShape,
        me: u32,
        mine: &[Vec<u32>],
        theirs: &[Vec<Vec<u32>>],
        data: &[Vec<Vec<u32>>],
    ) -> Result<Self, KeyError> {
        let table = |keys: &[Vec<Vec<u32>>]| -> Result<Vec<u32>, KeyError> {
            let rows = keys.iter().zip(0..).map(|(keys, pe)| rows(shape, pe, keys));
            Ok(rows.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let (rkeys, data_rkeys) = (table(theirs)?, table(data)?);
        Ok(Self {
            rails: shape.rails,
            chunks: shape.chunks,
            log2_chunk: shape.log2_chunk,
            lkeys: rows(shape, me, mine)?,
            rkeys,
            data_rkeys,
        })
    }

    /// The lkey of a heap offset on a rail.
    pub fn lkey(&self, rail: u32, offset: u64) -> Option<u32> {
        let chunk = self.chunk(rail, offset)?;
        present(self.lkeys[(rail * self.chunks + chunk) as usize])
    }

    /// The rkey of a heap offset of a PE on that PE's rail.
    pub fn rkey(&self, pe: u32, rail: u32, offset: u64) -> Option<u32> {
        let chunk = self.chunk(rail, offset)?;
        present(*self.rkeys.get(((pe * self.rails + rail) * self.chunks + chunk) as usize)?)
    }

    /// True if the data of puts goes under keys of its own.
    pub fn data_apart(&self) -> bool {
        self.data_rkeys != self.rkeys
    }

    fn chunk(&self, rail: u32, offset: u64) -> Option<u32> {
        let chunk = offset >> self.log2_chunk;
        (rail < self.rails && chunk < u64::from(self.chunks)).then_some(chunk as u32)
    }

    /// The lkey table as device code holds it.
    pub fn lkey_bytes(&self) -> Vec<u8> {
        self.lkeys.iter().flat_map(|key| key.to_be_bytes()).collect()
    }

    /// The rkey tables as device code holds them, that of the data of puts last.
    pub fn rkey_bytes(&self) -> Vec<u8> {
        self.rkeys.iter().chain(&self.data_rkeys).flat_map(|key| key.to_be_bytes()).collect()
    }
}

fn present(key: u32) -> Option<u32> {
    (key != 0).then_some(key)
}

fn rows(shape: KeyShape, pe: u32, keys: &[Vec<u32>]) -> Result<Vec<u32>, KeyError> {
    if keys.len() > shape.rails as usize {
        return Err(KeyError::Rails { pe, met: keys.len(), want: shape.rails as usize });
    }
    let mut flat = Vec::with_capacity((shape.rails * shape.chunks) as usize);
    for (rail, row) in keys.iter().enumerate() {
        if row.len() != shape.chunks as usize {
            return Err(KeyError::Count {
                pe,
                rail: rail as u32,
                met: row.len(),
                want: shape.chunks as usize,
            });
        }
        flat.extend(row);
    }
    flat.resize((shape.rails * shape.chunks) as usize, 0);
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KeyShape = KeyShape { rails: 2, chunks: 3, log2_chunk: 12 };

    fn table() -> KeyTable {
        let mine = [vec![0x101, 0x102, 0x103], vec![0x111, 0x112, 0x113]];
        let theirs = [mine.to_vec(), vec![vec![0xa01, 0xa02, 0xa03]]];
        KeyTable::build(SHAPE, 0, &mine, &theirs, &theirs).unwrap()
    }

    #[test]
    fn lookup_by_rail_and_chunk() {
        let table = table();
        assert_eq!(table.lkey(0, 0xfff), Some(0x101));
        assert_eq!(table.lkey(1, 0x1000), Some(0x112));
        assert_eq!(table.rkey(0, 1, 0x2fff), Some(0x113));
        assert_eq!(table.rkey(1, 0, 0x2000), Some(0xa03));
        assert_eq!(table.lkey(0, 0x3000), None, "behind the heap");
        assert_eq!(table.lkey(2, 0), None, "no such rail");
        assert_eq!(table.rkey(1, 1, 0), None, "PE 1 has one rail");
        assert_eq!(table.rkey(2, 0, 0), None, "no such PE");
    }

    #[test]
    fn tables_are_big_endian_rows() {
        let bytes = table().lkey_bytes();
        assert_eq!(bytes[..8], [0, 0, 1, 1, 0, 0, 1, 2]);
        assert_eq!(bytes.len(), 24);
        let bytes = table().rkey_bytes();
        assert_eq!(bytes.len(), 2 * 48);
        assert_eq!(bytes[24..28], [0, 0, 0x0a, 1]);
        assert_eq!(bytes[36..48], [0; 12]);
        assert_eq!(bytes[..48], bytes[48..]);
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let short = KeyTable::build(SHAPE, 4, &[vec![1, 2]], &[], &[]);
        assert_eq!(short, Err(KeyError::Count { pe: 4, rail: 0, met: 2, want: 3 }));
        let many = KeyTable::build(SHAPE, 0, &[], &[vec![vec![1, 2, 3]; 3]], &[]);
        assert_eq!(many, Err(KeyError::Rails { pe: 0, met: 3, want: 2 }));
    }

    #[test]
    fn chunk_count_rounds_up() {
        assert_eq!((chunks(1, 12), chunks(4096, 12), chunks(4097, 12)), (1, 1, 2));
    }
}
