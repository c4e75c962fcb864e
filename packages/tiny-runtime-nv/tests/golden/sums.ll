; program tiny_sums for sm_90a
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @tiny_sums(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1) #0 {
start:
  %m0 = alloca [1 x float], align 16
  %v1 = call range(i32 0, 4) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %v2 = call range(i32 0, 32) i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v3 = icmp eq i32 %v2, 0
  %v5 = getelementptr inbounds float, ptr %m0, i32 0
  store float 0x0000000000000000, ptr %v5, align 4
  %v6 = shl i32 %v1, 8
  %v7 = add nsw i32 %v2, %v6
  br label %loop8
loop8:
  %i8 = phi i32 [ 0, %start ], [ %next8, %loop8 ]
  %v9 = getelementptr inbounds float, ptr %m0, i32 0
  %v10 = load float, ptr %v9, align 4
  %v11 = shl i32 %i8, 5
  %v12 = add nsw i32 %v7, %v11
  %v13 = getelementptr inbounds float, ptr addrspace(1) %p1, i32 %v12
  %v14 = load float, ptr addrspace(1) %v13, align 4
  %v15 = fadd float %v10, %v14
  %v17 = getelementptr inbounds float, ptr %m0, i32 0
  store float %v15, ptr %v17, align 4
  %next8 = add nsw i32 %i8, 1
  %v18 = icmp slt i32 %next8, 8
  br i1 %v18, label %loop8, label %done8
done8:
  %v19 = getelementptr inbounds float, ptr %m0, i32 0
  %v20 = load float, ptr %v19, align 4
  %v21 = bitcast float %v20 to i32
  %v22 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v21, i32 1, i32 31)
  %v23 = bitcast i32 %v22 to float
  %v24 = fadd float %v20, %v23
  %v25 = bitcast float %v24 to i32
  %v26 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v25, i32 2, i32 31)
  %v27 = bitcast i32 %v26 to float
  %v28 = fadd float %v24, %v27
  %v29 = bitcast float %v28 to i32
  %v30 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v29, i32 4, i32 31)
  %v31 = bitcast i32 %v30 to float
  %v32 = fadd float %v28, %v31
  %v33 = bitcast float %v32 to i32
  %v34 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v33, i32 8, i32 31)
  %v35 = bitcast i32 %v34 to float
  %v36 = fadd float %v32, %v35
  %v37 = bitcast float %v36 to i32
  %v38 = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v37, i32 16, i32 31)
  %v39 = bitcast i32 %v38 to float
  %v40 = fadd float %v36, %v39
  br i1 %v3, label %if41, label %fi41
if41:
  br i1 %v3, label %then42, label %join42
then42:
  %v43 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v1
  store float %v40, ptr addrspace(1) %v43, align 4
  br label %join42
join42:
  br label %fi41
fi41:
  ret void
}

declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

attributes #0 = { nounwind "target-cpu"="sm_90a" "target-features"="+ptx80" "nvvm.reqntid"="32,1,1" }
attributes #1 = { alwaysinline nounwind "target-cpu"="sm_90a" "target-features"="+ptx80" }
