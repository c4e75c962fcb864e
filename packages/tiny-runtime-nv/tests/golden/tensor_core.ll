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
  store <4 x float> zeroinitializer, ptr %v14, align 4
  %v15 = shl i32 %v1, 10
  %v16 = add nsw i32 %v15, %v8
  %v17 = shl i32 %v10, 6
  %v18 = add nsw i32 %v16, %v17
  %v19 = shl i32 %v7, 5
  %v20 = add nsw i32 %v4, %v19
  %v21 = add nsw i32 %v20, %v10
  br label %loop22
loop22:
  %i22 = phi i32 [ 0, %start ], [ %next22, %loop22 ]
  %v23 = shl i32 %i22, 4
  %v24 = add nsw i32 %v18, %v23
  %v25 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v24
  %v26 = load bfloat, ptr addrspace(1) %v25, align 2 ; beside 4
  %v27 = add nsw i32 %v24, 1
  %v28 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v27
  %v29 = load bfloat, ptr addrspace(1) %v28, align 2
  %v30 = add nsw i32 %v24, 512
  %v31 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v30
  %v32 = load bfloat, ptr addrspace(1) %v31, align 2 ; beside 4
  %v33 = add nsw i32 %v24, 513
  %v34 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v33
  %v35 = load bfloat, ptr addrspace(1) %v34, align 2
  %v36 = add nsw i32 %v24, 8
  %v37 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v36
  %v38 = load bfloat, ptr addrspace(1) %v37, align 2 ; beside 4
  %v39 = add nsw i32 %v24, 9
  %v40 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v39
  %v41 = load bfloat, ptr addrspace(1) %v40, align 2
  %v42 = add nsw i32 %v24, 520
  %v43 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v42
  %v44 = load bfloat, ptr addrspace(1) %v43, align 2 ; beside 4
  %v45 = add nsw i32 %v24, 521
  %v46 = getelementptr inbounds bfloat, ptr addrspace(1) %p1, i32 %v45
  %v47 = load bfloat, ptr addrspace(1) %v46, align 2
  %v48 = insertelement <8 x bfloat> poison, bfloat %v26, i32 0
  %v49 = insertelement <8 x bfloat> %v48, bfloat %v29, i32 1
  %v50 = insertelement <8 x bfloat> %v49, bfloat %v32, i32 2
  %v51 = insertelement <8 x bfloat> %v50, bfloat %v35, i32 3
  %v52 = insertelement <8 x bfloat> %v51, bfloat %v38, i32 4
  %v53 = insertelement <8 x bfloat> %v52, bfloat %v41, i32 5
  %v54 = insertelement <8 x bfloat> %v53, bfloat %v44, i32 6
  %v55 = insertelement <8 x bfloat> %v54, bfloat %v47, i32 7
  %v56 = shl i32 %i22, 8
  %v57 = add nsw i32 %v21, %v56
  %v58 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v57
  %v59 = load bfloat, ptr addrspace(1) %v58, align 2
  %v60 = add nsw i32 %v57, 16
  %v61 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v60
  %v62 = load bfloat, ptr addrspace(1) %v61, align 2
  %v63 = add nsw i32 %v57, 128
  %v64 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v63
  %v65 = load bfloat, ptr addrspace(1) %v64, align 2
  %v66 = add nsw i32 %v57, 144
  %v67 = getelementptr inbounds bfloat, ptr addrspace(1) %p2, i32 %v66
  %v68 = load bfloat, ptr addrspace(1) %v67, align 2
  %v69 = insertelement <4 x bfloat> poison, bfloat %v59, i32 0
  %v70 = insertelement <4 x bfloat> %v69, bfloat %v62, i32 1
  %v71 = insertelement <4 x bfloat> %v70, bfloat %v65, i32 2
  %v72 = insertelement <4 x bfloat> %v71, bfloat %v68, i32 3
  %v73 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  %v74 = load <4 x float>, ptr %v73, align 4
  %v75 = bitcast <8 x bfloat> %v55 to <4 x i32>
  %v76 = extractelement <4 x i32> %v75, i32 0
  %v77 = extractelement <4 x i32> %v75, i32 1
  %v78 = extractelement <4 x i32> %v75, i32 2
  %v79 = extractelement <4 x i32> %v75, i32 3
  %v80 = bitcast <4 x bfloat> %v72 to <2 x i32>
  %v81 = extractelement <2 x i32> %v80, i32 0
  %v82 = extractelement <2 x i32> %v80, i32 1
  %v83 = bitcast <4 x float> %v74 to <4 x i32>
  %v84 = extractelement <4 x i32> %v83, i32 0
  %v85 = extractelement <4 x i32> %v83, i32 1
  %v86 = extractelement <4 x i32> %v83, i32 2
  %v87 = extractelement <4 x i32> %v83, i32 3
  %v88 = bitcast i32 %v84 to float
  %v89 = bitcast i32 %v85 to float
  %v90 = bitcast i32 %v86 to float
  %v91 = bitcast i32 %v87 to float
  %v92 = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32 %v76, i32 %v77, i32 %v78, i32 %v79, i32 %v81, i32 %v82, float %v88, float %v89, float %v90, float %v91)
  %v93 = extractvalue { float, float, float, float } %v92, 0
  %v94 = bitcast float %v93 to i32
  %v95 = insertelement <4 x i32> poison, i32 %v94, i32 0
  %v96 = extractvalue { float, float, float, float } %v92, 1
  %v97 = bitcast float %v96 to i32
  %v98 = insertelement <4 x i32> %v95, i32 %v97, i32 1
  %v99 = extractvalue { float, float, float, float } %v92, 2
  %v100 = bitcast float %v99 to i32
  %v101 = insertelement <4 x i32> %v98, i32 %v100, i32 2
  %v102 = extractvalue { float, float, float, float } %v92, 3
  %v103 = bitcast float %v102 to i32
  %v104 = insertelement <4 x i32> %v101, i32 %v103, i32 3
  %v105 = bitcast <4 x i32> %v104 to <4 x float>
  %v107 = getelementptr inbounds <4 x float>, ptr %m0, i32 0
  store <4 x float> %v105, ptr %v107, align 4
  %next22 = add nsw i32 %i22, 1
  %v108 = icmp slt i32 %next22, 4
  br i1 %v108, label %loop22, label %done22
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
