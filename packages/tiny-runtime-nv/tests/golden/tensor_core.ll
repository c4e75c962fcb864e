; program tiny_matmul for sm_90a
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @tiny_matmul(ptr addrspace(1) noalias %p0, ptr addrspace(1) noalias readonly %p1, ptr addrspace(1) noalias readonly %p2) #0 {
start:
  %m0 = alloca [1 x <4 x float>], align 16
  %v1 = call range(i32 0, 2) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %v2 = shl i32 %v1, 8
  %v3 = call range(i32 0, 2) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %v4 = shl i32 %v3, 3
  %v5 = add nsw i32 %v2, %v4
  %v6 = call range(i32 0, 32) i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %v7 = and i32 %v6, 3
  %v8 = shl i32 %v7, 1
  %v9 = add nsw i32 %v5, %v8
  %v10 = ashr i32 %v6, 2
  %v11 = shl i32 %v10, 4
  %v12 = add nsw i32 %v9, %v11
  %v14 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  store <4 x float> <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, ptr %v14, align 4
  %v15 = shl i32 %v1, 10
  %v16 = add nsw i32 %v15, %v8
  %v17 = shl i32 %v10, 6
  %v18 = add nsw i32 %v16, %v17
  %v19 = shl i32 %v7, 5
  %v20 = add nsw i32 %v4, %v19
  %v21 = add nsw i32 %v20, %v10
  br label %loop22
loop22:
  %i22 = phi i32 [ 0, %start ], [ %next22, %latch22 ]
  %v23 = icmp slt i32 %i22, 4
  br i1 %v23, label %body22, label %done22
body22:
  %v24 = shl i32 %i22, 4
  %v25 = add nsw i32 %v18, %v24
  %v26 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v25
  %v27 = load bfloat, ptr addrspace(1) %v26, align 2 ; beside 4
  %v28 = add nsw i32 %v25, 1
  %v29 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v28
  %v30 = load bfloat, ptr addrspace(1) %v29, align 2
  %v31 = add nsw i32 %v25, 512
  %v32 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v31
  %v33 = load bfloat, ptr addrspace(1) %v32, align 2 ; beside 4
  %v34 = add nsw i32 %v25, 513
  %v35 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v34
  %v36 = load bfloat, ptr addrspace(1) %v35, align 2
  %v37 = add nsw i32 %v25, 8
  %v38 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v37
  %v39 = load bfloat, ptr addrspace(1) %v38, align 2 ; beside 4
  %v40 = add nsw i32 %v25, 9
  %v41 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v40
  %v42 = load bfloat, ptr addrspace(1) %v41, align 2
  %v43 = add nsw i32 %v25, 520
  %v44 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v43
  %v45 = load bfloat, ptr addrspace(1) %v44, align 2 ; beside 4
  %v46 = add nsw i32 %v25, 521
  %v47 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v46
  %v48 = load bfloat, ptr addrspace(1) %v47, align 2
  %v49 = insertelement <8 x bfloat> poison, bfloat %v27, i32 0
  %v50 = insertelement <8 x bfloat> %v49, bfloat %v30, i32 1
  %v51 = insertelement <8 x bfloat> %v50, bfloat %v33, i32 2
  %v52 = insertelement <8 x bfloat> %v51, bfloat %v36, i32 3
  %v53 = insertelement <8 x bfloat> %v52, bfloat %v39, i32 4
  %v54 = insertelement <8 x bfloat> %v53, bfloat %v42, i32 5
  %v55 = insertelement <8 x bfloat> %v54, bfloat %v45, i32 6
  %v56 = insertelement <8 x bfloat> %v55, bfloat %v48, i32 7
  %v57 = shl i32 %i22, 8
  %v58 = add nsw i32 %v21, %v57
  %v59 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v58
  %v60 = load bfloat, ptr addrspace(1) %v59, align 2
  %v61 = add nsw i32 %v58, 16
  %v62 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v61
  %v63 = load bfloat, ptr addrspace(1) %v62, align 2
  %v64 = add nsw i32 %v58, 128
  %v65 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v64
  %v66 = load bfloat, ptr addrspace(1) %v65, align 2
  %v67 = add nsw i32 %v58, 144
  %v68 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v67
  %v69 = load bfloat, ptr addrspace(1) %v68, align 2
  %v70 = insertelement <4 x bfloat> poison, bfloat %v60, i32 0
  %v71 = insertelement <4 x bfloat> %v70, bfloat %v63, i32 1
  %v72 = insertelement <4 x bfloat> %v71, bfloat %v66, i32 2
  %v73 = insertelement <4 x bfloat> %v72, bfloat %v69, i32 3
  %v74 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  %v75 = load <4 x float>, ptr %v74, align 4
  %v76 = bitcast <8 x bfloat> %v56 to <4 x i32>
  %v77 = extractelement <4 x i32> %v76, i32 0
  %v78 = extractelement <4 x i32> %v76, i32 1
  %v79 = extractelement <4 x i32> %v76, i32 2
  %v80 = extractelement <4 x i32> %v76, i32 3
  %v81 = bitcast <4 x bfloat> %v73 to <2 x i32>
  %v82 = extractelement <2 x i32> %v81, i32 0
  %v83 = extractelement <2 x i32> %v81, i32 1
  %v84 = bitcast <4 x float> %v75 to <4 x i32>
  %v85 = extractelement <4 x i32> %v84, i32 0
  %v86 = extractelement <4 x i32> %v84, i32 1
  %v87 = extractelement <4 x i32> %v84, i32 2
  %v88 = extractelement <4 x i32> %v84, i32 3
  %v89 = bitcast i32 %v85 to float
  %v90 = bitcast i32 %v86 to float
  %v91 = bitcast i32 %v87 to float
  %v92 = bitcast i32 %v88 to float
  %v93 = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32 %v77, i32 %v78, i32 %v79, i32 %v80, i32 %v82, i32 %v83, float %v89, float %v90, float %v91, float %v92)
  %v94 = extractvalue { float, float, float, float } %v93, 0
  %v95 = bitcast float %v94 to i32
  %v96 = insertelement <4 x i32> poison, i32 %v95, i32 0
  %v97 = extractvalue { float, float, float, float } %v93, 1
  %v98 = bitcast float %v97 to i32
  %v99 = insertelement <4 x i32> %v96, i32 %v98, i32 1
  %v100 = extractvalue { float, float, float, float } %v93, 2
  %v101 = bitcast float %v100 to i32
  %v102 = insertelement <4 x i32> %v99, i32 %v101, i32 2
  %v103 = extractvalue { float, float, float, float } %v93, 3
  %v104 = bitcast float %v103 to i32
  %v105 = insertelement <4 x i32> %v102, i32 %v104, i32 3
  %v106 = bitcast <4 x i32> %v105 to <4 x float>
  %v108 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  store <4 x float> %v106, ptr %v108, align 4
  br label %latch22
latch22:
  %next22 = add nsw i32 %i22, 1
  br label %loop22
done22:
  %v109 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  %v110 = load <4 x float>, ptr %v109, align 4
  %v111 = extractelement <4 x float> %v110, i32 0
  %v112 = add nsw i32 %v12, 1
  %v113 = extractelement <4 x float> %v110, i32 1
  %v114 = add nsw i32 %v12, 128
  %v115 = extractelement <4 x float> %v110, i32 2
  %v116 = add nsw i32 %v12, 129
  %v117 = extractelement <4 x float> %v110, i32 3
  %v119 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v12
  store float %v111, ptr addrspace(1) %v119, align 4 ; beside 8
  %v121 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v112
  store float %v113, ptr addrspace(1) %v121, align 4
  %v123 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v114
  store float %v115, ptr addrspace(1) %v123, align 4 ; beside 8
  %v125 = getelementptr inbounds float, ptr addrspace(1) %p0, i32 %v116
  store float %v117, ptr addrspace(1) %v125, align 4
  ret void
}

declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32, i32, i32, i32, i32, i32, float, float, float, float)

attributes #0 = { nounwind "target-cpu"="sm_90a" "target-features"="+ptx80" "nvvm.reqntid"="32,1,1" }
attributes #1 = { alwaysinline nounwind "target-cpu"="sm_90a" "target-features"="+ptx80" }
