/* Compiles a program's device code with NVRTC 12 and links it by nvJitLink 12 with objects of the device library that
 * CUDA 12's ptxas assembled: CUDA 12 comes without an nvcc where it comes as Python packages.
 *
 *   nvrtc12 LIBNVRTC LIBNVJITLINK SM PROGRAM.cu OBJECT -I... */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not in NVRTC, and included by headers that need nothing of it there. */
static const char *const NAMES[] = {"stdint.h"}, *const EMPTY[] = {""};

static void *symbol(void *library, const char *name) {
    void *at = dlsym(library, name);
    if (!at) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return at;
}

static char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) perror(path), exit(1);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(*bytes + 1, 1);
    if (!text || fread(text, 1, *bytes, file) != *bytes) perror(path), exit(1);
    fclose(file);
    return text;
}

/* The PTX of a program. */
static char *compile(void *nvrtc, const char *sm, const char *path, int count, char **more, size_t *bytes) {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*build)(void *, int, const char *const *);
    int (*size)(void *, size_t *), (*get)(void *, char *), (*log_size)(void *, size_t *), (*get_log)(void *, char *);
    *(void **)&create = symbol(nvrtc, "nvrtcCreateProgram");
    *(void **)&build = symbol(nvrtc, "nvrtcCompileProgram");
    *(void **)&size = symbol(nvrtc, "nvrtcGetPTXSize");
    *(void **)&get = symbol(nvrtc, "nvrtcGetPTX");
    *(void **)&log_size = symbol(nvrtc, "nvrtcGetProgramLogSize");
    *(void **)&get_log = symbol(nvrtc, "nvrtcGetProgramLog");
    char arch[64];
    snprintf(arch, sizeof arch, "--gpu-architecture=compute_%s", sm);
    const char *options[64] = {arch, "--relocatable-device-code=true", "--std=c++17"};
    int used = 3;
    for (int i = 0; i < count && used < 64; i++) options[used++] = more[i];
    size_t length;
    void *program = NULL;
    if (create(&program, read_file(path, &length), path, 1, EMPTY, NAMES)) fprintf(stderr, "NVRTC\n"), exit(1);
    int failed = build(program, used, options);
    log_size(program, &length);
    char *log = calloc(length + 1, 1);
    get_log(program, log);
    if (failed) fprintf(stderr, "%s", log), exit(1);
    size(program, bytes);
    char *ptx = calloc(*bytes + 1, 1);
    get(program, ptx);
    return ptx;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    void *nvrtc = dlopen(argv[1], RTLD_NOW), *linker = dlopen(argv[2], RTLD_NOW);
    if (!nvrtc || !linker) fprintf(stderr, "%s\n", dlerror()), exit(1);
    size_t ptx_bytes, object_bytes, cubin_bytes = 0;
    char *ptx = compile(nvrtc, argv[3], argv[4], argc - 6, argv + 6, &ptx_bytes);
    char *object = read_file(argv[5], &object_bytes);
    int (*create)(void **, unsigned, const char **), (*complete)(void *), (*size)(void *, size_t *);
    int (*add)(void *, int, const void *, size_t, const char *), (*log_size)(void *, size_t *), (*get)(void *, char *);
    *(void **)&create = symbol(linker, "__nvJitLinkCreate_12_9");
    *(void **)&add = symbol(linker, "__nvJitLinkAddData_12_9");
    *(void **)&complete = symbol(linker, "__nvJitLinkComplete_12_9");
    *(void **)&size = symbol(linker, "__nvJitLinkGetLinkedCubinSize_12_9");
    *(void **)&log_size = symbol(linker, "__nvJitLinkGetErrorLogSize_12_9");
    *(void **)&get = symbol(linker, "__nvJitLinkGetErrorLog_12_9");
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=sm_%s", argv[3]);
    const char *options[] = {arch};
    void *link = NULL;
    enum { CUBIN = 1, PTX = 2 };
    int status = create(&link, 1, options);
    if (!status) status = add(link, PTX, ptx, ptx_bytes, argv[4]);
    if (!status) status = add(link, CUBIN, object, object_bytes, argv[5]);
    if (!status) status = complete(link);
    if (!status) status = size(link, &cubin_bytes);
    if (status) {
        size_t length = 0;
        log_size(link, &length);
        char *log = calloc(length + 1, 1);
        get(link, log);
        fprintf(stderr, "nvJitLink: %d\n%s\n", status, log);
        return 1;
    }
    printf("%zu bytes\n", cubin_bytes);
    return cubin_bytes == 0;
}
