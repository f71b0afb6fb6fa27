//! Our layout against the header that every other user of the NIC compiles: rdma-core's `mlx5dv.h`.
//!
//! A small C program prints what the header says and encodes a few structures with the header's own
//! functions. Without the header (Debian: libibverbs-dev) or a C compiler there is nothing to compare with:
//! the test says that it is skipped, and fails where `CI` is set, because there the header is installed.

use shunt_layout::mlx5::cqe::{self, Syndrome, Tail, opcode};
use shunt_layout::mlx5::doorbell;
use shunt_layout::mlx5::wqe::{self, Opcode};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What the C program printed.
struct Header {
    numbers: BTreeMap<String, u64>,
    bytes: BTreeMap<String, String>,
}

impl Header {
    /// Compiles and runs the program. `None` with a line on the output if that is not possible here.
    fn read(test: &str) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/describe.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("describe-{test}"));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let compiled = Command::new(&compiler)
            .args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"])
            .arg(&program)
            .arg(&source)
            .output();
        let missing = match &compiled {
            Err(error) => Some(format!("no C compiler '{compiler}' ({error})")),
            Ok(output) if !output.status.success() => {
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(
                    text.contains("infiniband/mlx5dv.h: No such file"),
                    "{compiler} refuses {source:?}:\n{text}"
                );
                Some("no infiniband/mlx5dv.h (Debian: libibverbs-dev)".to_owned())
            }
            Ok(_) => None,
        };
        if let Some(missing) = missing {
            assert!(std::env::var_os("CI").is_none(), "{missing}, and CI is set: install it there");
            println!("SKIPPED: {missing}");
            return None;
        }
        let output = Command::new(&program).output().expect("the program just compiled runs");
        assert!(output.status.success(), "{program:?} ended with {}", output.status);
        Some(Self::parse(&String::from_utf8(output.stdout).expect("ASCII")))
    }

    fn parse(text: &str) -> Self {
        let mut header = Self { numbers: BTreeMap::new(), bytes: BTreeMap::new() };
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("kind, name, value");
            let (name, value) = rest.rsplit_once(' ').expect("name, value");
            match kind {
                "number" => _ = header.numbers.insert(name.to_owned(), value.parse().expect("a number")),
                _ => _ = header.bytes.insert(name.to_owned(), value.to_owned()),
            }
        }
        header
    }

    /// Compares all numbers of a table, and takes them out, so that what is left was compared by nobody.
    fn compare(&mut self, ours: &[(&str, u64)]) {
        for (name, value) in ours {
            assert_eq!(self.numbers.remove(*name), Some(*value), "{name}");
        }
    }

    fn compare_words(&mut self, name: &str, words: &[u32]) {
        let ours: String =
            words.iter().flat_map(|word| word.to_ne_bytes()).map(|b| format!("{b:02x}")).collect();
        assert_eq!(self.bytes.remove(name).as_deref(), Some(ours.as_str()), "{name}");
    }
}

fn opcodes() -> Vec<(&'static str, u64)> {
    [
        ("MLX5_OPCODE_NOP", Opcode::Nop),
        ("MLX5_OPCODE_SEND_INVAL", Opcode::SendInval),
        ("MLX5_OPCODE_RDMA_WRITE", Opcode::RdmaWrite),
        ("MLX5_OPCODE_RDMA_WRITE_IMM", Opcode::RdmaWriteImm),
        ("MLX5_OPCODE_SEND", Opcode::Send),
        ("MLX5_OPCODE_SEND_IMM", Opcode::SendImm),
        ("MLX5_OPCODE_RDMA_READ", Opcode::RdmaRead),
        ("MLX5_OPCODE_ATOMIC_CS", Opcode::AtomicCs),
        ("MLX5_OPCODE_ATOMIC_FA", Opcode::AtomicFa),
        ("MLX5_OPCODE_ATOMIC_MASKED_CS", Opcode::AtomicMaskedCs),
        ("MLX5_OPCODE_ATOMIC_MASKED_FA", Opcode::AtomicMaskedFa),
    ]
    .map(|(name, opcode)| (name, opcode as u64))
    .to_vec()
}

fn completions() -> Vec<(&'static str, u64)> {
    let codes = [
        ("MLX5_CQE_REQ", opcode::REQ),
        ("MLX5_CQE_RESP_WR_IMM", opcode::RESP_WRITE_IMM),
        ("MLX5_CQE_RESP_SEND", opcode::RESP_SEND),
        ("MLX5_CQE_RESP_SEND_IMM", opcode::RESP_SEND_IMM),
        ("MLX5_CQE_REQ_ERR", opcode::REQ_ERR),
        ("MLX5_CQE_RESP_ERR", opcode::RESP_ERR),
        ("MLX5_CQE_INVALID", opcode::INVALID),
    ];
    let syndromes = [
        ("MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR", Syndrome::LOCAL_LENGTH),
        ("MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR", Syndrome::LOCAL_QP_OPERATION),
        ("MLX5_CQE_SYNDROME_LOCAL_PROT_ERR", Syndrome::LOCAL_PROTECTION),
        ("MLX5_CQE_SYNDROME_WR_FLUSH_ERR", Syndrome::FLUSHED),
        ("MLX5_CQE_SYNDROME_BAD_RESP_ERR", Syndrome::BAD_RESPONSE),
        ("MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR", Syndrome::LOCAL_ACCESS),
        ("MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR", Syndrome::REMOTE_INVALID_REQUEST),
        ("MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR", Syndrome::REMOTE_ACCESS),
        ("MLX5_CQE_SYNDROME_REMOTE_OP_ERR", Syndrome::REMOTE_OPERATION),
        ("MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR", Syndrome::RETRY_EXCEEDED),
        ("MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR", Syndrome::RNR_RETRY_EXCEEDED),
        ("MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR", Syndrome::REMOTE_ABORTED),
    ];
    let codes = codes.iter().map(|(name, code)| (*name, u64::from(*code)));
    codes.chain(syndromes.iter().map(|(name, syndrome)| (*name, u64::from(syndrome.0)))).collect()
}

fn sizes_and_offsets() -> Vec<(&'static str, u64)> {
    let segment = size_of::<wqe::Segment>();
    [
        ("sizeof(mlx5_wqe_ctrl_seg)", segment),
        ("sizeof(mlx5_wqe_raddr_seg)", segment),
        ("sizeof(mlx5_wqe_data_seg)", segment),
        ("sizeof(mlx5_wqe_atomic_seg)", wqe::SEGMENT_BYTES),
        ("sizeof(mlx5_wqe_inl_data_seg)", wqe::WQEBB_BYTES - 2 * segment - wqe::INLINE_MAX),
        ("sizeof(mlx5_cqe64)", cqe::CQE_BYTES),
        ("sizeof(mlx5_err_cqe)", cqe::CQE_BYTES),
        ("mlx5_cqe64.srqn_uidx", cqe::USER_INDEX_OFFSET),
        ("mlx5_cqe64.byte_cnt", cqe::BYTE_COUNT_OFFSET),
        ("mlx5_cqe64.sop_drop_qpn", cqe::OPCODE_QPN_OFFSET),
        ("mlx5_cqe64.wqe_counter", cqe::TAIL_OFFSET),
        ("mlx5_cqe64.signature", cqe::TAIL_OFFSET + 2),
        ("mlx5_cqe64.op_own", cqe::TAIL_OFFSET + 3),
        ("mlx5_err_cqe.vendor_err_synd", cqe::VENDOR_SYNDROME_OFFSET),
        ("mlx5_err_cqe.syndrome", cqe::SYNDROME_OFFSET),
        ("mlx5_err_cqe.s_wqe_opcode_qpn", cqe::OPCODE_QPN_OFFSET),
        ("mlx5_err_cqe.wqe_counter", cqe::TAIL_OFFSET),
        ("mlx5_err_cqe.op_own", cqe::TAIL_OFFSET + 3),
        ("MLX5_SEND_WQE_BB", wqe::WQEBB_BYTES),
        ("MLX5_RCV_DBR", 0),
        ("MLX5_SND_DBR", doorbell::SEND_COUNTER_OFFSET / 4),
    ]
    .map(|(name, value)| (name, value as u64))
    .to_vec()
}

#[test]
fn our_layout_is_that_of_mlx5dv_h() {
    let Some(mut header) = Header::read("layout") else { return };
    header.compare(&sizes_and_offsets());
    header.compare(&opcodes());
    header.compare(&completions());
    header.compare(&[
        ("MLX5_INLINE_SEG", wqe::INLINE_FLAG.into()),
        ("MLX5_WQE_CTRL_CQ_UPDATE", wqe::CqeWhen::Always as u64),
        ("MLX5_WQE_CTRL_FENCE", wqe::FENCE_BEFORE.into()),
        (
            "MLX5_CQE_OWNER_MASK",
            u32::from_be(Tail { wqe_counter: 0, opcode: 0, owner: true }.to_memory()).into(),
        ),
    ]);
    assert!(header.numbers.is_empty(), "printed but not compared: {:?}", header.numbers);
}

#[test]
fn our_encoders_write_what_rdma_cores_write() {
    let Some(mut header) = Header::read("encoders") else { return };
    let flags = wqe::CqeWhen::Always as u8 | wqe::FENCE_BEFORE;
    header.compare_words("ctrl", &wqe::ctrl(Opcode::RdmaWrite, 0x89ab, 0x12_3456 << 8, 3, flags));
    header.compare_words("raddr", &wqe::remote(0x0123_4567_89ab_cdef, 0xdead_beef_u32.to_be()));
    header.compare_words("data", &wqe::data(0xfedc_ba98_7654_3210, 0xcafe_f00d_u32.to_be(), 0x1234_5678));
    header.compare_words("inline", &wqe::inline8(0x1122_3344_5566_7788));
    let tail = |wqe_counter, opcode, owner| Tail { wqe_counter, opcode, owner }.to_memory();
    header.compare_words("tail", &[tail(0xfffe, opcode::REQ, true)]);
    let mut error = [0; 16];
    let syndrome = u32::from(cqe::vendor::ACK_TIMEOUT) << 8 | u32::from(Syndrome::RETRY_EXCEEDED.0);
    error[cqe::SYNDROME_WORD_OFFSET / 4] = syndrome.to_be();
    error[cqe::OPCODE_QPN_OFFSET / 4] = ((Opcode::RdmaWrite as u32) << 24 | 0x12_3456).to_be();
    error[cqe::TAIL_OFFSET / 4] = tail(0x0102, opcode::REQ_ERR, false);
    header.compare_words("error", &error);
    let mut record = [0; 2];
    record[doorbell::SEND_COUNTER_OFFSET / 4] = doorbell::send_counter(0x7_89ab);
    header.compare_words("record", &record);
    assert!(header.bytes.is_empty(), "printed but not compared: {:?}", header.bytes);
}
