; Captured graphs: an array of calls that pool.ll runs in order. Appended to pool.ll, so that both are one module.

declare ptr @memmove(ptr, ptr, i64)

; One call of a graph: the arguments of pool_run. Calls that change together share integers and division.
%call = type { ptr, ptr, ptr, ptr }  ; function, buffers, integers, division

; How a call is divided among threads.
%division = type { i64, i64, i64 }  ; extent, chunks, threads

; Where an address has to be written: *target = addresses[index] + offset.
%patch = type { ptr, i64, i64 }  ; target, index, offset

%graph = type {
  ptr,  ; 0 pool; null if no call has more than one thread
  ptr,  ; 1 calls
  i64,  ; 2 how many
  ptr,  ; 3 patches
  i64,  ; 4 how many
  ptr,  ; 5 addresses of the memories
  ptr,  ; 6 times: of the beginning, then of the end of each call; null if nobody wants to know
  i64   ; 7 the clock of these
}

; What clock_gettime gives: seconds and nanoseconds.
%time = type { i64, i64 }

; Write the addresses where they belong, then run all calls in order.
define void @graph_run(ptr %graph) {
entry:
  %pool_field = getelementptr %graph, ptr %graph, i64 0, i32 0
  %calls_field = getelementptr %graph, ptr %graph, i64 0, i32 1
  %call_count_field = getelementptr %graph, ptr %graph, i64 0, i32 2
  %patches_field = getelementptr %graph, ptr %graph, i64 0, i32 3
  %patch_count_field = getelementptr %graph, ptr %graph, i64 0, i32 4
  %addresses_field = getelementptr %graph, ptr %graph, i64 0, i32 5
  %pool = load ptr, ptr %pool_field
  %calls = load ptr, ptr %calls_field
  %call_count = load i64, ptr %call_count_field
  %patches = load ptr, ptr %patches_field
  %patch_count = load i64, ptr %patch_count_field
  %addresses = load ptr, ptr %addresses_field
  %times_field = getelementptr %graph, ptr %graph, i64 0, i32 6
  %clock_field = getelementptr %graph, ptr %graph, i64 0, i32 7
  %times = load ptr, ptr %times_field
  %clock_long = load i64, ptr %clock_field
  %clock = trunc i64 %clock_long to i32
  %is_timed = icmp ne ptr %times, null
  br label %patch_check

patch_check:
  %p = phi i64 [ 0, %entry ], [ %p_next, %patch ]
  %more_patches = icmp slt i64 %p, %patch_count
  br i1 %more_patches, label %patch, label %begin_check

patch:
  %target_field = getelementptr %patch, ptr %patches, i64 %p, i32 0
  %index_field = getelementptr %patch, ptr %patches, i64 %p, i32 1
  %offset_field = getelementptr %patch, ptr %patches, i64 %p, i32 2
  %target = load ptr, ptr %target_field
  %index = load i64, ptr %index_field
  %offset = load i64, ptr %offset_field
  %source = getelementptr i64, ptr %addresses, i64 %index
  %start = load i64, ptr %source
  %address = add i64 %start, %offset
  store i64 %address, ptr %target
  %p_next = add i64 %p, 1
  br label %patch_check

begin_check:
  br i1 %is_timed, label %begin, label %call_check

begin:
  %begun = call i32 @clock_gettime(i32 %clock, ptr %times)
  br label %call_check

call_check:
  %c = phi i64 [ 0, %begin_check ], [ 0, %begin ], [ %c_next, %following ]
  %more_calls = icmp slt i64 %c, %call_count
  br i1 %more_calls, label %call, label %exit

call:
  %function_field = getelementptr %call, ptr %calls, i64 %c, i32 0
  %buffers_field = getelementptr %call, ptr %calls, i64 %c, i32 1
  %integers_field = getelementptr %call, ptr %calls, i64 %c, i32 2
  %division_field = getelementptr %call, ptr %calls, i64 %c, i32 3
  %extent_field = load ptr, ptr %division_field
  %chunks_field = getelementptr %division, ptr %extent_field, i64 0, i32 1
  %threads_field = getelementptr %division, ptr %extent_field, i64 0, i32 2
  %extent = load i64, ptr %extent_field
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %run, label %next

run:
  %function = load ptr, ptr %function_field
  %buffers = load ptr, ptr %buffers_field
  %integers = load ptr, ptr %integers_field
  %chunks = load i64, ptr %chunks_field
  %threads = load i64, ptr %threads_field
  call void @pool_run(ptr %pool, ptr %function, ptr %buffers, ptr %integers, i64 %extent, i64 %chunks, i64 %threads)
  br label %next

next:
  %c_next = add i64 %c, 1
  br i1 %is_timed, label %end, label %following

end:
  %time = getelementptr %time, ptr %times, i64 %c_next
  %ended = call i32 @clock_gettime(i32 %clock, ptr %time)
  br label %following

following:
  br label %call_check

exit:
  ret void
}

; A copy as a kernel over bytes, from buffers[1] to buffers[0]. They may overlap if it is done in one part.
define void @copy_bytes(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
  %source_field = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %buffers
  %source = load ptr, ptr %source_field
  %to = getelementptr i8, ptr %target, i64 %begin
  %from = getelementptr i8, ptr %source, i64 %begin
  %length = sub i64 %end, %begin
  %1 = call ptr @memmove(ptr %to, ptr %from, i64 %length)
  ret void
}
