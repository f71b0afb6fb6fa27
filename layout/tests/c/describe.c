/* Prints what rdma-core's own header says of work queues and completions, for tests/c_headers.rs to compare.
 * Lines are "number NAME VALUE" or "bytes NAME HEX". */
#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#define NUMBER(name) printf("number " #name " %llu\n", (unsigned long long)(name))
#define SIZE(type) printf("number sizeof(" #type ") %zu\n", sizeof(struct type))
#define OFFSET(type, field) printf("number " #type "." #field " %zu\n", offsetof(struct type, field))

static void bytes(const char *name, const void *at, size_t size)
{
	const unsigned char *byte = at;
	printf("bytes %s ", name);
	for (size_t i = 0; i < size; i++)
		printf("%02x", byte[i]);
	printf("\n");
}

static void sizes_and_offsets(void)
{
	SIZE(mlx5_wqe_ctrl_seg);
	SIZE(mlx5_wqe_raddr_seg);
	SIZE(mlx5_wqe_data_seg);
	SIZE(mlx5_wqe_inl_data_seg);
	SIZE(mlx5_wqe_atomic_seg);
	SIZE(mlx5_cqe64);
	SIZE(mlx5_err_cqe);
	OFFSET(mlx5_cqe64, srqn_uidx);
	OFFSET(mlx5_cqe64, byte_cnt);
	OFFSET(mlx5_cqe64, sop_drop_qpn);
	OFFSET(mlx5_cqe64, wqe_counter);
	OFFSET(mlx5_cqe64, signature);
	OFFSET(mlx5_cqe64, op_own);
	OFFSET(mlx5_err_cqe, vendor_err_synd);
	OFFSET(mlx5_err_cqe, syndrome);
	OFFSET(mlx5_err_cqe, s_wqe_opcode_qpn);
	OFFSET(mlx5_err_cqe, wqe_counter);
	OFFSET(mlx5_err_cqe, op_own);
}

static void constants(void)
{
	NUMBER(MLX5_RCV_DBR);
	NUMBER(MLX5_SND_DBR);
	NUMBER(MLX5_SEND_WQE_BB);
	NUMBER(MLX5_INLINE_SEG);
	NUMBER(MLX5_WQE_CTRL_CQ_UPDATE);
	NUMBER(MLX5_WQE_CTRL_FENCE);
	NUMBER(MLX5_OPCODE_NOP);
	NUMBER(MLX5_OPCODE_SEND_INVAL);
	NUMBER(MLX5_OPCODE_RDMA_WRITE);
	NUMBER(MLX5_OPCODE_RDMA_WRITE_IMM);
	NUMBER(MLX5_OPCODE_SEND);
	NUMBER(MLX5_OPCODE_SEND_IMM);
	NUMBER(MLX5_OPCODE_RDMA_READ);
	NUMBER(MLX5_OPCODE_ATOMIC_CS);
	NUMBER(MLX5_OPCODE_ATOMIC_FA);
	NUMBER(MLX5_OPCODE_ATOMIC_MASKED_CS);
	NUMBER(MLX5_OPCODE_ATOMIC_MASKED_FA);
	NUMBER(MLX5_CQE_OWNER_MASK);
	NUMBER(MLX5_CQE_REQ);
	NUMBER(MLX5_CQE_RESP_WR_IMM);
	NUMBER(MLX5_CQE_RESP_SEND);
	NUMBER(MLX5_CQE_RESP_SEND_IMM);
	NUMBER(MLX5_CQE_REQ_ERR);
	NUMBER(MLX5_CQE_RESP_ERR);
	NUMBER(MLX5_CQE_INVALID);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	NUMBER(MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	NUMBER(MLX5_CQE_SYNDROME_BAD_RESP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
	NUMBER(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	NUMBER(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	NUMBER(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
}

static void encodings(void)
{
	struct mlx5_wqe_ctrl_seg ctrl;
	struct mlx5_wqe_raddr_seg raddr;
	struct mlx5_wqe_data_seg data;
	struct {
		struct mlx5_wqe_inl_data_seg head;
		unsigned long long value;
		unsigned int unused;
	} __attribute__((packed)) inl;
	struct mlx5_cqe64 cqe;
	struct mlx5_err_cqe error;
	uint32_t record[2] = {0, 0};

	memset(&ctrl, 0, sizeof(ctrl));
	mlx5dv_set_ctrl_seg(&ctrl, 0x89ab, MLX5_OPCODE_RDMA_WRITE, 0, 0x123456,
			    MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE, 3, 0, 0);
	bytes("ctrl", &ctrl, sizeof(ctrl));

	memset(&raddr, 0, sizeof(raddr));
	raddr.raddr = htobe64(0x0123456789abcdefULL);
	raddr.rkey = htobe32(0xdeadbeef);
	bytes("raddr", &raddr, sizeof(raddr));

	mlx5dv_set_data_seg(&data, 0x12345678, 0xcafef00d, 0xfedcba9876543210ULL);
	bytes("data", &data, sizeof(data));

	memset(&inl, 0, sizeof(inl));
	inl.head.byte_count = htobe32(8 | MLX5_INLINE_SEG);
	inl.value = 0x1122334455667788ULL;
	bytes("inline", &inl, sizeof(inl));

	memset(&cqe, 0, sizeof(cqe));
	cqe.wqe_counter = htobe16(0xfffe);
	cqe.op_own = MLX5_CQE_REQ << 4;
	mlx5dv_set_cqe_owner(&cqe, 1);
	bytes("tail", (char *)&cqe + offsetof(struct mlx5_cqe64, wqe_counter), 4);

	memset(&error, 0, sizeof(error));
	error.syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
	error.vendor_err_synd = 0x81;
	error.s_wqe_opcode_qpn = htobe32(MLX5_OPCODE_RDMA_WRITE << 24 | 0x123456);
	error.wqe_counter = htobe16(0x0102);
	error.op_own = MLX5_CQE_REQ_ERR << 4;
	bytes("error", &error, sizeof(error));

	record[MLX5_SND_DBR] = htobe32(0x89ab & 0xffff);
	bytes("record", record, sizeof(record));
}

int main(void)
{
	sizes_and_offsets();
	constants();
	encodings();
	return 0;
}
