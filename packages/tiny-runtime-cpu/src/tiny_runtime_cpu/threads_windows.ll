; What pool.ll and graph.ll ask of the system, by functions of kernel32 (learn.microsoft.com, "Slim Reader/Writer Locks",
; "Condition Variables", "CreateThread", "QueryPerformanceCounter"). A mutex is an SRWLOCK and a condition a
; CONDITION_VARIABLE: each a pointer, zero at first. The attributes of a thread are the bytes of its stack. There are no
; signals to block.

declare void @AcquireSRWLockExclusive(ptr)
declare void @ReleaseSRWLockExclusive(ptr)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)
declare void @WakeConditionVariable(ptr)
declare void @WakeAllConditionVariable(ptr)
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @WaitForSingleObject(ptr, i32)
declare i32 @CloseHandle(ptr)
declare i32 @SwitchToThread()
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)

define internal i32 @pthread_mutex_init(ptr %mutex, ptr %attributes) {
  store ptr null, ptr %mutex
  ret i32 0
}

define internal i32 @pthread_mutex_lock(ptr %mutex) {
  call void @AcquireSRWLockExclusive(ptr %mutex)
  ret i32 0
}

define internal i32 @pthread_mutex_unlock(ptr %mutex) {
  call void @ReleaseSRWLockExclusive(ptr %mutex)
  ret i32 0
}

define internal i32 @pthread_cond_init(ptr %condition, ptr %attributes) {
  store ptr null, ptr %condition
  ret i32 0
}

; For ever (INFINITE), with the lock held alone. It may come back early, as on POSIX.
define internal i32 @pthread_cond_wait(ptr %condition, ptr %mutex) {
  %1 = call i32 @SleepConditionVariableSRW(ptr %condition, ptr %mutex, i32 -1, i32 0)
  ret i32 0
}

define internal i32 @pthread_cond_signal(ptr %condition) {
  call void @WakeConditionVariable(ptr %condition)
  ret i32 0
}

define internal i32 @pthread_cond_broadcast(ptr %condition) {
  call void @WakeAllConditionVariable(ptr %condition)
  ret i32 0
}

define internal i32 @pthread_attr_init(ptr %attributes) {
  store i64 0, ptr %attributes
  ret i32 0
}

define internal i32 @pthread_attr_setstacksize(ptr %attributes, i64 %bytes) {
  store i64 %bytes, ptr %attributes
  ret i32 0
}

define internal i32 @pthread_attr_destroy(ptr %attributes) {
  ret i32 0
}

; The pointer that the function returns becomes the thread's exit code, of which nobody asks. The bytes of its stack are
; addresses that are reserved (STACK_SIZE_PARAM_IS_A_RESERVATION), not memory.
define internal i32 @pthread_create(ptr %thread, ptr %attributes, ptr %function, ptr %argument) {
  %bytes = load i64, ptr %attributes
  %handle = call ptr @CreateThread(ptr null, i64 %bytes, ptr %function, ptr %argument, i32 65536, ptr null)
  store ptr %handle, ptr %thread
  %failed = icmp eq ptr %handle, null
  %error = zext i1 %failed to i32
  ret i32 %error
}

define internal i32 @pthread_join(i64 %thread, ptr %result) {
  %handle = inttoptr i64 %thread to ptr
  %1 = call i32 @WaitForSingleObject(ptr %handle, i32 -1)
  %2 = call i32 @CloseHandle(ptr %handle)
  ret i32 0
}

define internal i32 @pthread_sigmask(i32 %how, ptr %set, ptr %before) {
  ret i32 0
}

define internal i32 @sigfillset(ptr %set) {
  ret i32 0
}

define internal i32 @sched_yield() {
  %1 = call i32 @SwitchToThread()
  ret i32 0
}

; Seconds and nanoseconds, of counts at so many a second.
define internal i32 @clock_gettime(i32 %clock, ptr %time) {
  %count_place = alloca i64
  %rate_place = alloca i64
  %1 = call i32 @QueryPerformanceCounter(ptr %count_place)
  %2 = call i32 @QueryPerformanceFrequency(ptr %rate_place)
  %count = load i64, ptr %count_place
  %rate = load i64, ptr %rate_place
  %seconds = udiv i64 %count, %rate
  %whole = mul i64 %seconds, %rate
  %rest = sub i64 %count, %whole
  %scaled = mul i64 %rest, 1000000000
  %nanoseconds = udiv i64 %scaled, %rate
  %nanoseconds_place = getelementptr i64, ptr %time, i64 1
  store i64 %seconds, ptr %time
  store i64 %nanoseconds, ptr %nanoseconds_place
  ret i32 0
}
