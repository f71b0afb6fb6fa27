/* In the place of CUDA's header, of which nothing is used but that it is there. */
namespace cooperative_groups {}
