/*
 * Carries the relocatable device code into libshunt_device.a, so that `nvcc -rdc=true program.cu -lshunt_device` links
 * it as it links an object of its own: code by architecture in __nv_relfatbin, the name of the module in
 * __nv_module_id, and a constructor that registers what the device link made of it. SHUNT_FATBIN names the file.
 */

__asm__(".section __nv_relfatbin, \"a\"\n"
        ".balign 8\n"
        ".hidden shunt_device_fatbin\n"
        ".globl shunt_device_fatbin\n"
        "shunt_device_fatbin:\n"
        ".incbin \"" SHUNT_FATBIN "\"\n"
        ".previous\n");

extern const char shunt_device_fatbin[] __attribute__((visibility("hidden")));

/* The names below end in the module's name: nvlink makes the second one. */
static const char module_name[] __attribute__((section("__nv_module_id"), aligned(16), used)) = "_shunt_device_library";

struct fatbin_wrapper {
    int magic;
    int version;
    const void *data;
    const void *unused;
};

const struct fatbin_wrapper __fatbinwrap_shunt_device_library __attribute__((section(".nvFatBinSegment"), aligned(8))) = {
    0x466243b1,
    1,
    shunt_device_fatbin,
    0,
};

extern void __cudaRegisterLinkedBinary_shunt_device_library(
    void (*variables)(void **), void *wrapper, void *module, void (*callback)(void *));

/* The library has no variables that the host knows: its root belongs to the program. */
static void no_variables(void **handle) { (void)handle; }
static void no_callback(void *handle) { (void)handle; }

__attribute__((constructor)) static void register_library(void) {
    __cudaRegisterLinkedBinary_shunt_device_library(
        no_variables, (void *)&__fatbinwrap_shunt_device_library, (void *)module_name, no_callback);
}
