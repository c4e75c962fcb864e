// What a model of a GPU language needs of the machine that runs its kernels. machine.cpp is the machine.
#pragma once
#include <stddef.h>

extern "C" {
// All threads of the workgroup wait here for each other. `line` says which barrier this is, `orders` of which memory what
// they did before comes before what any of them does behind it: of buffers, of arrays that the workgroup shares.
enum { ORDERS_NOTHING, ORDERS_DEVICE, ORDERS_SHARED, ORDERS_ALL };
void machine_barrier(int line, unsigned orders);
// The threads of a warp give `size` bytes each and get those of all of them, in the order of their lanes.
void machine_exchange(int line, const void* given, size_t size, void* all);
// An array that the workgroup shares: says where it is. What is in it at first is no number.
void machine_shared(const char* name, void* begin, size_t size);
// The word of another lane of the warp, where all threads of the warp give one.
unsigned machine_take(int line, unsigned word, unsigned lane);
// A copy of `size` bytes to an array that the workgroup shares, while the thread goes on: `given` bytes come from memory, the
// others are zeros. It is there once this thread has waited for it; until then nobody may touch the place.
void machine_copy(void* to, const void* from, size_t size, size_t given);
// The copies since the last call are a group.
void machine_copies_end();
// Waits until all groups of this thread but the last `most` are there.
void machine_copies_wait(unsigned most);
// An instruction that goes on while its thread does, and for which memory is another way than for stores, reads bytes that
// the workgroup shares: who has written them has to have called machine_fence since.
void machine_read_behind(const void* at, size_t size);
void machine_fence();
// An update of `size` bytes in one step comes next: others may update them at the same time, but not read or write them.
void machine_update(const void* at, size_t size);
// The number of this thread in its workgroup, and how many there are.
unsigned machine_number();
unsigned machine_size();
// The lane of this thread in its warp.
unsigned machine_lane();
// What the thread does is wrong, in words.
void machine_wrong(const char* what);
// Axis 0, 1, 2 of the workgroup, and 3, 4, 5 of the thread in it.
unsigned machine_position(unsigned which);
// A matrix instruction of the warp: `given` has this thread's elements of a, b and c one after the other, `made` gets its
// elements of the result. machine.cpp says what a table is.
void machine_matrix(int line, const int* table, const void* given, void* made);
}

// Functions that are the model's own, not the kernel's: their memory accesses are not looked at.
#define MODEL __attribute__((no_sanitize("thread"), no_sanitize("undefined"), noinline))
