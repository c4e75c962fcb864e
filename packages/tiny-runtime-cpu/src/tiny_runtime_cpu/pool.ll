; A thread pool for kernels, in LLVM IR so that no C compiler is needed. pool.py compiles it once per process and appends
; `@relax`, the processor's spin-wait hint, and `@processor_here`.
;
; One job at a time: [0, extent) cut into chunks that the caller and the workers claim one after the other. A kernel may
; claim more of them itself, by the function that it is passed: what it has prepared for one, it has for all. A job is
; published by setting `open`; a worker joins by incrementing `active` and only then reading `open`; the caller leaves
; by clearing `open` and only then waiting for `active` to become 0. All four are sequentially consistent, so either the
; worker sees the job closed or the caller sees the worker, and a worker that wakes too late costs nothing.
;
; Each of up to 8 threads has a share of the chunks, next to each other, with a counter of its own; of more threads, some
; 8 neighbours, on one node of memory (socket), have one. A thread claims of its share first: what it reads and writes
; there it, or a neighbour, had in its caches in the launch before, and has touched first; and few wait for one counter.
; `unfinished` says whether another share has any left.
;
; Workers spin for a moment after a job and then sleep on `wake`. `sleepers` and `generation` form the same kind of pair:
; the caller raises `generation` before it reads `sleepers`, a worker raises `sleepers` before it reads `generation`.

%pool = type {
  [128 x i8],      ;  0 mutex
  [128 x i8],      ;  1 wake: workers sleep here
  [128 x i8],      ;  2 done: the caller sleeps here
  i64, [56 x i8],  ;  3 generation: jobs published so far
  i64, [56 x i8],  ;  5 sleepers
  i64, [56 x i8],  ;  7 active: workers that may be inside the job
  i64, [56 x i8],  ;  9 next: the first unclaimed chunk
  i64, [56 x i8],  ; 11 busy: a caller owns the pool
  i64,             ; 13 waiting: the caller sleeps on `done`
  i64,             ; 14 stop
  i64,             ; 15 spin: iterations before a thread goes to sleep
  i64, [32 x i8],  ; 16 workers: threads that exist
  i64,             ; 18 open: the fields below describe a job
  ptr,             ; 19 function
  ptr,             ; 20 buffers
  ptr,             ; 21 integers
  i64,             ; 22 quotient = extent / chunks
  i64,             ; 23 remainder = extent % chunks
  i64,             ; 24 chunks
  i64,             ; 25 limit: workers that may join
  [1024 x i64],    ; 26 thread handles
  i64,             ; 27 nodes: of memory, up to 256; up to 1: all is near everywhere
  ptr,             ; 28 position_of: a byte for each of 1024 processors, whose 256 values the shares divide in order
  i64,             ; 29 extent
  i64, [56 x i8],  ; 30 shares: of the open job, up to 256; 1: `next` counts
  i64, [56 x i8],  ; 32 unfinished: shares that have chunks left
  [256 x [8 x i64]]  ; 34 claimed: how many chunks of each share are, a line each
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; The size of the state, which the caller allocates zeroed.
define i64 @pool_size() {
  %end = getelementptr %pool, ptr null, i64 1
  %size = ptrtoint ptr %end to i64
  ret i64 %size
}

; Where the handles of the threads are.
define ptr @pool_handles(ptr %pool) {
  %handles = getelementptr %pool, ptr %pool, i64 0, i32 26
  ret ptr %handles
}

; Say how many nodes of memory there are, and where each processor is among its neighbours.
define void @pool_place(ptr %pool, i64 %nodes, ptr %position_of) {
  %nodes_field = getelementptr %pool, ptr %pool, i64 0, i32 27
  %position_of_field = getelementptr %pool, ptr %pool, i64 0, i32 28
  store i64 %nodes, ptr %nodes_field
  store ptr %position_of, ptr %position_of_field
  ret void
}

; How many shares a job has: as many for each node, of one thread each, or of 8 if there are more than 8 threads.
define internal i64 @shares_for(ptr %pool, i64 %threads) {
  %nodes_field = getelementptr %pool, ptr %pool, i64 0, i32 27
  %told = load i64, ptr %nodes_field
  %nodes = call i64 @llvm.smax.i64(i64 %told, i64 1)
  %are_few = icmp sle i64 %threads, 8
  %together = select i1 %are_few, i64 1, i64 8
  %sharers = mul i64 %nodes, %together
  %sum = add i64 %threads, %sharers
  %rounded = sub i64 %sum, 1
  %needed = udiv i64 %rounded, %sharers
  %most = udiv i64 256, %nodes
  %each = call i64 @llvm.smin.i64(i64 %needed, i64 %most)
  %shares = mul i64 %each, %nodes
  ret i64 %shares
}

; The first chunk of a share.
define internal i64 @first_of(i64 %share, i64 %shares, i64 %chunks) alwaysinline {
  %product = mul i64 %chunks, %share
  %first = udiv i64 %product, %shares
  ret i64 %first
}

; As `claim`, where there are several shares: of the thread's own first, then of the next ones.
define internal i64 @claim_near(ptr %pool, ptr %range, i64 %shares) {
entry:
  %position_of_field = getelementptr %pool, ptr %pool, i64 0, i32 28
  %chunks_field = getelementptr %pool, ptr %pool, i64 0, i32 24
  %extent_field = getelementptr %pool, ptr %pool, i64 0, i32 29
  %unfinished_field = getelementptr %pool, ptr %pool, i64 0, i32 32
  %chunks = load i64, ptr %chunks_field
  %extent = load i64, ptr %extent_field
  %position_of = load ptr, ptr %position_of_field
  %processor = call i64 @processor_here()
  %known = and i64 %processor, 1023
  %position_field = getelementptr i8, ptr %position_of, i64 %known
  %position_byte = load i8, ptr %position_field
  %position = zext i8 %position_byte to i64
  %scaled = mul i64 %position, %shares
  %here = lshr i64 %scaled, 8
  br label %look

look:
  %looked = phi i64 [ 0, %entry ], [ %looked_next, %further ]
  %sum = add i64 %here, %looked
  %share = urem i64 %sum, %shares
  %after = add i64 %share, 1
  %first = call i64 @first_of(i64 %share, i64 %shares, i64 %chunks)
  %end = call i64 @first_of(i64 %after, i64 %shares, i64 %chunks)
  %count = sub i64 %end, %first
  %claimed_field = getelementptr %pool, ptr %pool, i64 0, i32 34, i64 %share, i64 0
  %seen = load atomic i64, ptr %claimed_field monotonic, align 8
  %some = icmp slt i64 %seen, %count
  br i1 %some, label %try, label %beyond

try:
  %chunk = atomicrmw add ptr %claimed_field, i64 1 monotonic
  %left = icmp slt i64 %chunk, %count
  br i1 %left, label %found, label %beyond

beyond:
  %unfinished = load atomic i64, ptr %unfinished_field monotonic, align 8
  %others = icmp sgt i64 %unfinished, 0
  br i1 %others, label %further, label %none

further:
  %looked_next = add i64 %looked, 1
  %more = icmp slt i64 %looked_next, %shares
  br i1 %more, label %look, label %none

found:
  %chunk_next = add i64 %chunk, 1
  %is_last = icmp eq i64 %chunk_next, %count
  br i1 %is_last, label %last, label %divide

last:
  %1 = atomicrmw sub ptr %unfinished_field, i64 1 monotonic
  br label %divide

divide:
  ; its iterations in proportion to its chunks, so that each has one at least; longer ones first
  %share_begin = call i64 @first_of(i64 %first, i64 %chunks, i64 %extent)
  %share_end = call i64 @first_of(i64 %end, i64 %chunks, i64 %extent)
  %length = sub i64 %share_end, %share_begin
  %quotient = udiv i64 %length, %count
  %remainder = urem i64 %length, %count
  call void @range_of(ptr %range, i64 %share_begin, i64 %chunk, i64 %quotient, i64 %remainder)
  ret i64 1

none:
  ret i64 0
}

; Write the ends of a chunk that is one of several from `start` on, the first `remainder` with one iteration more.
define internal void @range_of(ptr %range, i64 %start, i64 %chunk, i64 %quotient, i64 %remainder) alwaysinline {
  %product = mul i64 %chunk, %quotient
  %base = add i64 %start, %product
  %extra = call i64 @llvm.smin.i64(i64 %chunk, i64 %remainder)
  %begin = add i64 %base, %extra
  %is_longer = icmp slt i64 %chunk, %remainder
  %longer = zext i1 %is_longer to i64
  %length = add i64 %quotient, %longer
  %end = add i64 %begin, %length
  %end_field = getelementptr i64, ptr %range, i64 1
  store i64 %begin, ptr %range
  store i64 %end, ptr %end_field
  ret void
}

define void @pool_init(ptr %pool) {
  %wake = getelementptr %pool, ptr %pool, i64 0, i32 1
  %done = getelementptr %pool, ptr %pool, i64 0, i32 2
  %1 = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %2 = call i32 @pthread_cond_init(ptr %wake, ptr null)
  %3 = call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}

; Claim a chunk of the open job: 1, with its ends in `range`, or 0 if none is left. The first remainder chunks have one
; iteration more.
define internal i64 @claim(ptr %pool, ptr %range) {
entry:
  %shares_field = getelementptr %pool, ptr %pool, i64 0, i32 30
  %shares = load i64, ptr %shares_field
  %several = icmp sgt i64 %shares, 1
  br i1 %several, label %near, label %any

near:
  %found = call i64 @claim_near(ptr %pool, ptr %range, i64 %shares)
  ret i64 %found

any:
  %next_field = getelementptr %pool, ptr %pool, i64 0, i32 9
  %chunks_field = getelementptr %pool, ptr %pool, i64 0, i32 24
  %chunks = load i64, ptr %chunks_field
  %chunk = atomicrmw add ptr %next_field, i64 1 monotonic
  %left = icmp slt i64 %chunk, %chunks
  br i1 %left, label %some, label %none

some:
  %quotient_field = getelementptr %pool, ptr %pool, i64 0, i32 22
  %remainder_field = getelementptr %pool, ptr %pool, i64 0, i32 23
  %quotient = load i64, ptr %quotient_field
  %remainder = load i64, ptr %remainder_field
  call void @range_of(ptr %range, i64 0, i64 %chunk, i64 %quotient, i64 %remainder)
  ret i64 1

none:
  ret i64 0
}

; Work on the open job until no chunk of it is left.
define internal void @work(ptr %pool) {
entry:
  %range = alloca [2 x i64], align 8
  %end_field = getelementptr i64, ptr %range, i64 1
  %function_field = getelementptr %pool, ptr %pool, i64 0, i32 19
  %buffers_field = getelementptr %pool, ptr %pool, i64 0, i32 20
  %integers_field = getelementptr %pool, ptr %pool, i64 0, i32 21
  %function = load ptr, ptr %function_field
  %buffers = load ptr, ptr %buffers_field
  %integers = load ptr, ptr %integers_field
  br label %next

next:
  %claimed = call i64 @claim(ptr %pool, ptr %range)
  %some = icmp ne i64 %claimed, 0
  br i1 %some, label %body, label %exit

body:
  %begin = load i64, ptr %range
  %end = load i64, ptr %end_field
  call void %function(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr @claim, ptr %pool)
  br label %next

exit:
  ret void
}

; One iteration of a spin-wait. Every 64th lets another thread have the processor, if one wants it.
define internal void @relax_or_yield(i64 %count) alwaysinline {
  %low = and i64 %count, 63
  %now = icmp eq i64 %low, 63
  br i1 %now, label %yield, label %stay

yield:
  %1 = call i32 @sched_yield()
  ret void

stay:
  call void @relax()
  ret void
}

; So many iterations of a spin-wait that lets nobody else have the processor, for who wants to know how long they take.
define void @pool_pause(i64 %iterations) {
entry:
  br label %check

check:
  %count = phi i64 [ 0, %entry ], [ %count_next, %pause ]
  %more = icmp slt i64 %count, %iterations
  br i1 %more, label %pause, label %exit

pause:
  call void @relax()
  %count_next = add i64 %count, 1
  br label %check

exit:
  ret void
}

define internal ptr @worker(ptr %pool) {
entry:
  %wake = getelementptr %pool, ptr %pool, i64 0, i32 1
  %done = getelementptr %pool, ptr %pool, i64 0, i32 2
  %generation_field = getelementptr %pool, ptr %pool, i64 0, i32 3
  %sleepers_field = getelementptr %pool, ptr %pool, i64 0, i32 5
  %active_field = getelementptr %pool, ptr %pool, i64 0, i32 7
  %waiting_field = getelementptr %pool, ptr %pool, i64 0, i32 13
  %stop_field = getelementptr %pool, ptr %pool, i64 0, i32 14
  %spin_field = getelementptr %pool, ptr %pool, i64 0, i32 15
  %open_field = getelementptr %pool, ptr %pool, i64 0, i32 18
  %limit_field = getelementptr %pool, ptr %pool, i64 0, i32 25
  br label %idle

idle:
  %seen = phi i64 [ -1, %entry ], [ %new, %leave ], [ %new, %signal ]
  br label %spin

spin:
  %count = phi i64 [ 0, %idle ], [ %count_next, %again ]
  %spun = load atomic i64, ptr %generation_field acquire, align 8
  %spin_new = icmp ne i64 %spun, %seen
  br i1 %spin_new, label %join, label %again

again:
  call void @relax_or_yield(i64 %count)
  %count_next = add i64 %count, 1
  %spins = load atomic i64, ptr %spin_field monotonic, align 8  ; more workers may make it less
  %more = icmp slt i64 %count_next, %spins
  br i1 %more, label %spin, label %sleep

sleep:
  %1 = call i32 @pthread_mutex_lock(ptr %pool)
  %2 = atomicrmw add ptr %sleepers_field, i64 1 seq_cst
  br label %sleep_check

sleep_check:
  %slept = load atomic i64, ptr %generation_field seq_cst, align 8
  %sleep_new = icmp ne i64 %slept, %seen
  br i1 %sleep_new, label %awake, label %sleep_wait

sleep_wait:
  %3 = call i32 @pthread_cond_wait(ptr %wake, ptr %pool)
  br label %sleep_check

awake:
  %4 = atomicrmw sub ptr %sleepers_field, i64 1 seq_cst
  %5 = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %join

join:
  %new = phi i64 [ %spun, %spin ], [ %slept, %awake ]
  %stop = load atomic i64, ptr %stop_field seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %exit, label %enter

enter:
  %before = atomicrmw add ptr %active_field, i64 1 seq_cst
  %open = load atomic i64, ptr %open_field seq_cst, align 8
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %opened, label %leave

opened:
  %limit = load i64, ptr %limit_field
  %welcome = icmp slt i64 %before, %limit
  br i1 %welcome, label %welcomed, label %leave

welcomed:
  call void @work(ptr %pool)
  br label %leave

leave:
  %active = atomicrmw sub ptr %active_field, i64 1 seq_cst
  %waiting = load atomic i64, ptr %waiting_field seq_cst, align 8
  %last = icmp eq i64 %active, 1
  %awaited = icmp ne i64 %waiting, 0
  %must_signal = and i1 %last, %awaited
  br i1 %must_signal, label %signal, label %idle

signal:
  %6 = call i32 @pthread_mutex_lock(ptr %pool)
  %7 = call i32 @pthread_cond_signal(ptr %done)
  %8 = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %idle

exit:
  ret ptr null
}

; Wake as many sleeping workers as the job can use.
define internal void @wake_workers(ptr %pool, i64 %wanted) {
entry:
  %wake = getelementptr %pool, ptr %pool, i64 0, i32 1
  %sleepers_field = getelementptr %pool, ptr %pool, i64 0, i32 5
  %sleepers = load atomic i64, ptr %sleepers_field seq_cst, align 8
  %nobody = icmp eq i64 %sleepers, 0
  br i1 %nobody, label %exit, label %lock

lock:
  ; passing through the mutex: whoever counted itself as a sleeper is now really waiting
  %1 = call i32 @pthread_mutex_lock(ptr %pool)
  %2 = call i32 @pthread_mutex_unlock(ptr %pool)
  %everybody = icmp sge i64 %wanted, %sleepers
  br i1 %everybody, label %all, label %some

all:
  %3 = call i32 @pthread_cond_broadcast(ptr %wake)
  br label %exit

some:
  %woken = phi i64 [ 0, %lock ], [ %woken_next, %one ]
  %enough = icmp sge i64 %woken, %wanted
  br i1 %enough, label %exit, label %one

one:
  %4 = call i32 @pthread_cond_signal(ptr %wake)
  %woken_next = add i64 %woken, 1
  br label %some

exit:
  ret void
}

; Wait until no worker is inside the closed job.
define internal void @drain(ptr %pool) {
entry:
  %done = getelementptr %pool, ptr %pool, i64 0, i32 2
  %active_field = getelementptr %pool, ptr %pool, i64 0, i32 7
  %waiting_field = getelementptr %pool, ptr %pool, i64 0, i32 13
  %spin_field = getelementptr %pool, ptr %pool, i64 0, i32 15
  %spins = load atomic i64, ptr %spin_field monotonic, align 8
  br label %spin

spin:
  %count = phi i64 [ 0, %entry ], [ %count_next, %again ]
  %active = load atomic i64, ptr %active_field seq_cst, align 8
  %empty = icmp eq i64 %active, 0
  br i1 %empty, label %exit, label %again

again:
  call void @relax_or_yield(i64 %count)
  %count_next = add i64 %count, 1
  %more = icmp slt i64 %count_next, %spins
  br i1 %more, label %spin, label %sleep

sleep:
  %1 = call i32 @pthread_mutex_lock(ptr %pool)
  store atomic i64 1, ptr %waiting_field seq_cst, align 8
  br label %sleep_check

sleep_check:
  %still_active = load atomic i64, ptr %active_field seq_cst, align 8
  %still_empty = icmp eq i64 %still_active, 0
  br i1 %still_empty, label %awake, label %sleep_wait

sleep_wait:
  %2 = call i32 @pthread_cond_wait(ptr %done, ptr %pool)
  br label %sleep_check

awake:
  store atomic i64 0, ptr %waiting_field seq_cst, align 8
  %3 = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %exit

exit:
  ret void
}

; Run function(buffers, integers, begin, end, claim, pool) over [0, extent) in `chunks` pieces on at most `threads`
; threads, this one included. Runs it all here, with nothing to claim, if one thread or piece is enough, or if another
; caller has the pool.
define void @pool_run(ptr %pool, ptr %function, ptr %buffers, ptr %integers, i64 %extent, i64 %chunks, i64 %threads) {
entry:
  %few_chunks = icmp sle i64 %chunks, 1
  %few_threads = icmp sle i64 %threads, 1
  %few = or i1 %few_chunks, %few_threads
  br i1 %few, label %serial, label %acquire

acquire:
  %busy_field = getelementptr %pool, ptr %pool, i64 0, i32 11
  %exchange = cmpxchg ptr %busy_field, i64 0, i64 1 acquire monotonic
  %owned = extractvalue { i64, i1 } %exchange, 1
  br i1 %owned, label %parallel, label %serial

serial:
  call void %function(ptr %buffers, ptr %integers, i64 0, i64 %extent, ptr null, ptr null)
  ret void

parallel:
  %generation_field = getelementptr %pool, ptr %pool, i64 0, i32 3
  %next_field = getelementptr %pool, ptr %pool, i64 0, i32 9
  %open_field = getelementptr %pool, ptr %pool, i64 0, i32 18
  %function_field = getelementptr %pool, ptr %pool, i64 0, i32 19
  %buffers_field = getelementptr %pool, ptr %pool, i64 0, i32 20
  %integers_field = getelementptr %pool, ptr %pool, i64 0, i32 21
  %quotient_field = getelementptr %pool, ptr %pool, i64 0, i32 22
  %remainder_field = getelementptr %pool, ptr %pool, i64 0, i32 23
  %chunks_field = getelementptr %pool, ptr %pool, i64 0, i32 24
  %limit_field = getelementptr %pool, ptr %pool, i64 0, i32 25
  %quotient = sdiv i64 %extent, %chunks
  %remainder = srem i64 %extent, %chunks
  %limit = sub i64 %threads, 1
  store ptr %function, ptr %function_field
  store ptr %buffers, ptr %buffers_field
  store ptr %integers, ptr %integers_field
  store i64 %quotient, ptr %quotient_field
  store i64 %remainder, ptr %remainder_field
  store i64 %chunks, ptr %chunks_field
  store i64 %limit, ptr %limit_field
  store atomic i64 0, ptr %next_field monotonic, align 8
  %extent_field = getelementptr %pool, ptr %pool, i64 0, i32 29
  %shares_field = getelementptr %pool, ptr %pool, i64 0, i32 30
  %unfinished_field = getelementptr %pool, ptr %pool, i64 0, i32 32
  %shares = call i64 @shares_for(ptr %pool, i64 %threads)
  store i64 %extent, ptr %extent_field
  store i64 %shares, ptr %shares_field
  %several = icmp sgt i64 %shares, 1
  br i1 %several, label %reset, label %publish

reset:
  %share = phi i64 [ 0, %parallel ], [ %after, %reset ]
  %filled = phi i64 [ 0, %parallel ], [ %filled_next, %reset ]
  %after = add i64 %share, 1
  %claimed_field = getelementptr %pool, ptr %pool, i64 0, i32 34, i64 %share, i64 0
  store atomic i64 0, ptr %claimed_field monotonic, align 8
  %first = call i64 @first_of(i64 %share, i64 %shares, i64 %chunks)
  %end = call i64 @first_of(i64 %after, i64 %shares, i64 %chunks)
  %is_filled = icmp slt i64 %first, %end
  %one = zext i1 %is_filled to i64
  %filled_next = add i64 %filled, %one
  store atomic i64 %filled_next, ptr %unfinished_field monotonic, align 8
  %more_shares = icmp slt i64 %after, %shares
  br i1 %more_shares, label %reset, label %publish

publish:
  store atomic i64 1, ptr %open_field seq_cst, align 8
  %1 = atomicrmw add ptr %generation_field, i64 1 seq_cst
  %useful = call i64 @llvm.smin.i64(i64 %chunks, i64 %threads)
  %wanted = sub i64 %useful, 1
  call void @wake_workers(ptr %pool, i64 %wanted)
  call void @work(ptr %pool)
  store atomic i64 0, ptr %open_field seq_cst, align 8
  call void @drain(ptr %pool)
  store atomic i64 0, ptr %busy_field release, align 8
  ret void
}

; Create workers until there are `wanted` (at most 1024); returns how many there are. All of them, and callers, now spin
; for `spin` iterations before they sleep. Signals are for the interpreter's own threads: `set_mask` is SIG_SETMASK, whose
; number differs between systems.
define i64 @pool_start(ptr %pool, i64 %wanted, i64 %spin, i32 %set_mask, i64 %stack_bytes) {
entry:
  %attributes = alloca [256 x i8], align 16
  %mask = alloca [256 x i8], align 16
  %old_mask = alloca [256 x i8], align 16
  %spin_field = getelementptr %pool, ptr %pool, i64 0, i32 15
  %workers_field = getelementptr %pool, ptr %pool, i64 0, i32 16
  store atomic i64 %spin, ptr %spin_field monotonic, align 8
  %limited = call i64 @llvm.smin.i64(i64 %wanted, i64 1024)
  %1 = call i32 @pthread_attr_init(ptr %attributes)
  %2 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 %stack_bytes)
  %3 = call i32 @sigfillset(ptr %mask)
  %4 = call i32 @pthread_sigmask(i32 %set_mask, ptr %mask, ptr %old_mask)
  br label %check

check:
  %workers = load i64, ptr %workers_field
  %missing = icmp slt i64 %workers, %limited
  br i1 %missing, label %create, label %finish

create:
  %handle = getelementptr %pool, ptr %pool, i64 0, i32 26, i64 %workers
  %error = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @worker, ptr %pool)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %finish, label %created

created:
  %workers_next = add i64 %workers, 1
  store i64 %workers_next, ptr %workers_field
  br label %check

finish:
  %5 = call i32 @pthread_sigmask(i32 %set_mask, ptr %old_mask, ptr null)
  %6 = call i32 @pthread_attr_destroy(ptr %attributes)
  %total = load i64, ptr %workers_field
  ret i64 %total
}

; End all workers and wait for them. No job may be running.
define void @pool_stop(ptr %pool) {
entry:
  %wake = getelementptr %pool, ptr %pool, i64 0, i32 1
  %generation_field = getelementptr %pool, ptr %pool, i64 0, i32 3
  %stop_field = getelementptr %pool, ptr %pool, i64 0, i32 14
  %workers_field = getelementptr %pool, ptr %pool, i64 0, i32 16
  store atomic i64 1, ptr %stop_field seq_cst, align 8
  %1 = atomicrmw add ptr %generation_field, i64 1 seq_cst
  %2 = call i32 @pthread_mutex_lock(ptr %pool)
  %3 = call i32 @pthread_cond_broadcast(ptr %wake)
  %4 = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %check

check:
  %workers = load i64, ptr %workers_field
  %some = icmp sgt i64 %workers, 0
  br i1 %some, label %join, label %exit

join:
  %workers_next = sub i64 %workers, 1
  %handle_field = getelementptr %pool, ptr %pool, i64 0, i32 26, i64 %workers_next
  %handle = load i64, ptr %handle_field
  %5 = call i32 @pthread_join(i64 %handle, ptr null)
  store i64 %workers_next, ptr %workers_field
  br label %check

exit:
  store atomic i64 0, ptr %stop_field seq_cst, align 8
  ret void
}
